
# Names of topics, services and queues: `tranship topic ls --names` lists them.
_tranship_names() {
    case "${words[2]} ${words[3]}" in
    "topic info" | "topic hz" | "topic bw" | "topic echo" | "topic pub" | "service call" | "queue peek" | "queue purge")
        if (( CURRENT == 4 )) && [[ ${words[4]} != -* ]]; then
            local -a names
            names=("${(@f)$(${words[1]} ${words[2]} ls --names 2>/dev/null)}")
            compadd -a names
            return
        fi
        ;;
    esac
    _tranship "$@"
}
compdef _tranship_names tranship
