/* Numbers and pointers that are wrong: the kernel says so, and the program goes on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wnonnull"

enum { PAGE = 4096, LEN = 100000 };
static int ends[2];
static char *large, *edge;

static void said(const char *what, ssize_t got) { printf("%s: %zd %s\n", what, got, got < 0 ? strerror(errno) : ""); }

/* What arrived is taken, so that there is room. */
static void taken(void) {
    static char rest[1 << 16];
    while (read(ends[1], rest, sizeof rest) > 0) {}
}

static ssize_t message(int fd, struct iovec *pieces, size_t count) {
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    return sendmsg(fd, &message, 0);
}

static void numbers(void) {
    int closed = dup(ends[0]);
    close(closed);
    int wrong[] = {-1, -2, INT_MIN, closed, INT_MAX};
    for (int n = 0; n < 5; n++) {
        struct iovec pieces[] = {{large, LEN}, {"end", 3}};
        said("write", write(wrong[n], large, LEN));
        said("send", send(wrong[n], large, LEN, 0));
        said("sendto", sendto(wrong[n], large, LEN, 0, NULL, 0));
        said("writev", writev(wrong[n], pieces, 2));
        said("sendmsg", message(wrong[n], pieces, 2));
        said("sendmsg of nothing", sendmsg(wrong[n], NULL, 0));
    }
}

static void lists(void) {
    struct iovec *cut = (struct iovec *)(edge - sizeof(struct iovec));
    *cut = (struct iovec){large, LEN};
    for (int n = 0; n < 2; n++) {
        void *wrong = n ? (void *)1 : NULL;
        said("writev", writev(ends[0], wrong, 2));
        said("sendmsg", sendmsg(ends[0], wrong, 0));
        said("its list", message(ends[0], wrong, 2));
    }
    said("a list that ends early", writev(ends[0], cut, 2));
    said("and in a message", message(ends[0], cut, 2));
    said("behind the edge", writev(ends[0], (struct iovec *)edge, 1));
    said("a message cut short", sendmsg(ends[0], (struct msghdr *)(edge - 16), 0));
    said("too many", writev(ends[0], cut, INT_MAX));
    said("fewer than none", writev(ends[0], cut, -1));
    said("far too many", message(ends[0], cut, SIZE_MAX / 8));
    said("as it should be", writev(ends[0], cut, 1));
    taken();
    /* An odd place is as good as any. */
    static char room[64];
    memcpy(room + 1, cut, sizeof *cut);
    said("an odd place", writev(ends[0], (struct iovec *)(room + 1), 1));
    taken();
    struct msghdr *odd = (struct msghdr *)(malloc(256) + 1), even = {.msg_iov = cut, .msg_iovlen = 1};
    memcpy(odd, &even, sizeof even);
    said("an odd message", sendmsg(ends[0], odd, 0));
    taken();
    free((char *)odd - 1);
}

static void pieces(void) {
    char *wrong[] = {(char *)1, edge, edge - 2, NULL, (char *)UINTPTR_MAX - 1};
    for (int n = 0; n < 5; n++)
        for (int times = 0; times < 20; times++) {
            struct iovec first[] = {{wrong[n], 7}, {large, LEN}}, last[] = {{large, LEN}, {wrong[n], 7}};
            ssize_t got = writev(ends[0], first, 2);
            if (times == 0) said("a header first", got);
            taken();
            got = writev(ends[0], last, 2);
            /* How much of it goes before the kernel meets the end is its own affair. */
            if (got < 0 ? errno != EFAULT : got > LEN + 2) said("and last", got);
            taken();
        }
    for (size_t len = 4096; len < 70000; len *= 2) {
        said("too long", write(ends[0], (void *)1, len));
        said("round the end", write(ends[0], (char *)UINTPTR_MAX - 100, len));
        struct iovec with[] = {{large, LEN}, {edge, len}};
        ssize_t got = writev(ends[0], with, 2);
        if (got < 0 ? errno != EFAULT : got > LEN) said("beside a large one", got);
        taken();
    }
}

static void *all(void *nothing) {
    numbers();
    lists();
    pieces();
    return nothing;
}

int main(void) {
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return 1;
    large = malloc(LEN);
    memset(large, 'x', LEN);
    edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (edge == MAP_FAILED || mprotect(edge += PAGE, PAGE, PROT_NONE) != 0) return 1;
    /* So that large ones go by reference. */
    for (int n = 0; n < 200; n++) {
        char head[16] = "head";
        struct iovec with[] = {{head, 16}, {large, LEN}};
        if (writev(ends[0], with, 2) != LEN + 16) return 1;
        taken();
    }
    all(NULL);
    if (pthread_create(&thread, NULL, all, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
    return 0;
}
