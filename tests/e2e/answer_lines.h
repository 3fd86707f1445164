// A program that answers questions: one in JSON a line of its input, one answer a line.
#pragma once

#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

// To be returned from main. An exception ends it with 1, after a line with the program's name.
template <class Answer>
int answer_lines(const char* program, Answer answer) {
  try {
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(nlohmann::json::parse(line)) << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << '\n';
    return 1;
  }
}
