
# Names of topics, services and queues: `tranship topic ls --names` lists them.
complete -c tranship -n "__fish_seen_subcommand_from topic; and __fish_seen_subcommand_from info hz bw echo pub" -f -a "(tranship topic ls --names 2>/dev/null)"
complete -c tranship -n "__fish_seen_subcommand_from service; and __fish_seen_subcommand_from call" -f -a "(tranship service ls --names 2>/dev/null)"
complete -c tranship -n "__fish_seen_subcommand_from queue; and __fish_seen_subcommand_from peek purge" -f -a "(tranship queue ls --names 2>/dev/null)"
