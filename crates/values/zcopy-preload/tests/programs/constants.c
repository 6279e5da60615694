/* Sends memory of a kind a hundred times, and sees that it arrives: a constant, memory that is said never to change, a variable. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(that) do { if (!(that)) { fprintf(stderr, "line %d: %s\n", __LINE__, #that); exit(1); } } while (0)
#define FOUR(x) x x x x
#define LONG FOUR(FOUR(FOUR(FOUR(FOUR(FOUR("0123456789"))))))
enum { LEN = 10 * 4096 };

static const char constant[LEN + 1] = LONG;
static char variable[LEN + 1] = LONG;
static char got[LEN + 5];

int main(int count, char **words) {
    CHECK(count == 2);
    const char *from = constant;
    if (strcmp(words[1], "variable") == 0) from = variable;
    if (strcmp(words[1], "named") == 0) {
        int (*name)(const void *, size_t) = (int (*)(const void *, size_t))dlsym(RTLD_DEFAULT, "zc_readonly");
        CHECK(name && name(variable, LEN) == 0);
        from = variable;
    }
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (int n = 0; n < 100; n++) {
        struct iovec both[2] = {{"head", 4}, {(void *)from, LEN}};
        ssize_t sent = n % 2 ? write(ends[0], from, LEN) : writev(ends[0], both, 2);
        CHECK(sent == LEN + (n % 2 ? 0 : 4));
        ssize_t all = 0, now;
        while (all < sent && (now = read(ends[1], got + all, sent - all)) > 0) all += now;
        CHECK(all == sent && memcmp(got + (n % 2 ? 0 : 4), constant, LEN) == 0);
    }
    return 0;
}
