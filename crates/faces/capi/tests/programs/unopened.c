/* The example whose thread cannot open the channel: the other one must not wait for it for ever. */
#include <tranship.h>
#define tranship_open_receiver(domain, name, options, timeout, out, error)                         \
    ((void)(domain), tranship_open_receiver(NULL, name, options, timeout, out, error))
#include "../../examples/move.c"
