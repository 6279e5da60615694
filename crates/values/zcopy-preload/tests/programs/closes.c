/* Closes all descriptors, as daemons do, and has files of its own under their numbers: they stay as they are, and so does its memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(that) do { if (!(that)) { fprintf(stderr, "line %d: %s\n", __LINE__, #that); exit(1); } } while (0)
enum { LEN = 1 << 20, FILES = 24, LARGE = 8 };

static char *large[LARGE];
static char page[65536];

static void send_one(const char *from) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (int n = 0; n < 20; n++) {
        CHECK(write(ends[0], from, 65536) == 65536);
        for (ssize_t all = 0, now; all < 65536; all += now) CHECK((now = read(ends[1], page + all, 65536 - all)) > 0);
        CHECK(memcmp(page, from, 65536) == 0);
    }
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **words) {
    CHECK(count == 2);
    for (int n = 0; n < LARGE; n++) CHECK((large[n] = malloc(LEN)) && memset(large[n], 'a' + n, LEN));
    send_one(large[0]);
    if (strcmp(words[1], "library") == 0) closefrom(3);
    else if (strcmp(words[1], "each") == 0) for (int fd = 3; fd < 200; fd++) close(fd);
    else syscall(SYS_close_range, 3, ~0u, 0);

    int files[FILES];
    for (int n = 0; n < FILES; n++) {
        CHECK((files[n] = memfd_create("own", MFD_CLOEXEC)) >= 0);
        CHECK(ftruncate(files[n], LARGE * LEN) == 0);
        for (int at = 0; at < LARGE * LEN; at += 65536) CHECK(pwrite(files[n], memset(page, 'z', 65536), 65536, at) == 65536);
    }
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int n = 0; n < LARGE; n++) CHECK(large[n][LEN - 1] == 'a' + n + round);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (int n = 0; n < LARGE; n++) {
            for (int at = 0; at < LEN; at += 5000) CHECK(large[n][at] == 'a' + n + round);
            memset(large[n], 'a' + n + round + 1, LEN);
        }
        if (strcmp(words[1], "kernel") != 0) send_one(large[round]);
        free(large[LARGE - 1]);
        CHECK((large[LARGE - 1] = malloc(LEN)) && memset(large[LARGE - 1], 'a' + LARGE - 1 + round + 1, LEN));
    }
    for (int n = 0; n < FILES; n++)
        for (int at = 0; at < LARGE * LEN; at += 65536) {
            CHECK(pread(files[n], page, 65536, at) == 65536);
            for (int byte = 0; byte < 65536; byte++) CHECK(page[byte] == 'z');
        }
    return 0;
}
