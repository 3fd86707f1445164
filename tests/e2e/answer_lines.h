// A loop for programs that answer questions: each line of the input is a JSON question, and gets a line of output.
#pragma once

#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

// Returns the exit code for main. An exception ends the loop with exit code 1, after a line with the program's name on
// stderr.
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
