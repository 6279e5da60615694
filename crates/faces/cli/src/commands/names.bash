
# Names of topics, services and queues: `tranship topic ls --names` lists them.
_tranship_names() {
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
    "topic info" | "topic hz" | "topic bw" | "topic echo" | "topic pub" | "service call" | "queue peek" | "queue purge")
        if [[ $COMP_CWORD -eq 3 && ${COMP_WORDS[3]} != -* ]]; then
            local name
            COMPREPLY=()
            while IFS= read -r name; do
                [[ $name == "${COMP_WORDS[3]}"* ]] && COMPREPLY+=("$(printf %q "$name")")
            done < <("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" ls --names 2>/dev/null)
            return 0
        fi
        ;;
    esac
    _tranship "$@"
}
complete -F _tranship_names -o bashdefault -o default tranship
