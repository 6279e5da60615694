/* A value that grows from little to much, and is sent: where it lies, and that it is whole. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(that) do { if (!(that)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #that, errno); exit(1); } } while (0)
enum { MOST = 1 << 20 };

static char byte_at(size_t at, int seed) { return (char)(at * 7 + at / 256 + seed); }

static char *check_some(char *value, size_t len, int seed, size_t step) {
    CHECK(value && malloc_usable_size(value) >= len);
    for (size_t at = 0; at < len; at += step) CHECK(value[at] == byte_at(at, seed));
    if (len > 0) CHECK(value[len - 1] == byte_at(len - 1, seed));
    return value;
}

static char *check(char *value, size_t len, int seed) { return check_some(value, len, seed, 1); }

static char *grow(size_t from, size_t step, int twice, int seed) {
    char *value = NULL;
    size_t len = 0;
    for (size_t next = from; len < MOST; next = twice ? 2 * next : next + step) {
        value = check_some(realloc(value, next), len, seed, 509);
        for (; len < next; len++) value[len] = byte_at(len, seed);
    }
    return value;
}

static void send_it(const char *value) {
    static char got[65536];
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (size_t at = 0; at + sizeof got <= MOST; at += sizeof got) {
        CHECK(write(ends[0], value + at, sizeof got) == sizeof got);
        for (size_t all = 0; all < sizeof got;) {
            ssize_t now = read(ends[1], got + all, sizeof got - all);
            CHECK(now > 0);
            all += now;
        }
        CHECK(memcmp(got, value + at, sizeof got) == 0);
    }
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    char *values[] = {grow(100, 0, 1, 1), grow(1, 3000, 0, 2), grow(16000, 2000, 0, 3), grow(20000, 50000, 0, 4)};
    for (int n = 0; n < 4; n++) send_it(check(values[n], MOST, n + 1));
    for (int n = 0; n < 4; n++) {
        /* What cannot be had leaves it as it is. */
        volatile size_t far_too_much = PTRDIFF_MAX;
        errno = 0;
        CHECK(realloc(values[n], far_too_much) == NULL && errno == ENOMEM);
        check(values[n], MOST, n + 1);
        for (size_t len = MOST; len > 10; len /= 3) values[n] = check(realloc(values[n], len), len, n + 1);
        free(values[n]);
    }
    /* Six pages of its own, or a place for eight in a pageblock. */
    char *pages = malloc(24000);
    printf("%zu\n", malloc_usable_size(pages));
    free(pages);
    return 0;
}
