# Completion of plumb for fish. The executable names the candidates; without one fish offers files.
function __plumb_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] __complete $words[2..] 2>/dev/null)
    if string length -q -- $found
        string join \n -- $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c plumb -f -a '(__plumb_complete)'
