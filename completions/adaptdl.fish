# Completes adaptdl command lines in fish. `adaptdl help --complete` prints the candidates.

function __adaptdl_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l lines ($words[1] help --complete -- $words[2..-1] "$typed" 2>/dev/null)
    switch "$lines[1]"
        case ':dir'
            __fish_complete_directories (string replace -r '^--[^=]*=' '' -- "$typed")
        case ':file'
            __fish_complete_path (string replace -r '^--[^=]*=' '' -- "$typed")
        case ':program'
            complete -C "$typed"
        case ':rest*'
            # adaptdl counts the words after its name from 0; fish counts all words from 1.
            set -l first (math (string replace ':rest ' '' -- $lines[1]) + 2)
            complete -C (string join ' ' -- (string escape -- $words[$first..-1]) "$typed")
        case '*'
            string join \n -- $lines
    end
end

complete -c adaptdl -f -a '(__adaptdl_complete)'
