/* What programs say that find something else than they should. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(is, wanted)                                                                           \
    do {                                                                                             \
        long long is_ = (long long)(is), wanted_ = (long long)(wanted);                              \
        if (is_ != wanted_) {                                                                        \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #is, is_, wanted_); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)
#define THERE(pointer) EXPECT((pointer) != NULL, 1)
#define NONE(pointer) EXPECT((pointer) == NULL, 1)

#endif
