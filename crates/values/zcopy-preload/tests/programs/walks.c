/* All memory that can be written, or is to be locked, is what the program has. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, LEN = 40000, MIB = 1 << 20, MOST = 64 };

/* MiB of the library's mappings that may be read, or written; touches them as redis does after a crash. */
static long walked(char right, int touch) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[5];
    unsigned long first, end, all = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %4s", &first, &end, rights) != 3 || !strstr(line, "tranship-zcopy")) continue;
        if (strstr(line, "tally") || !strchr(rights, right)) continue;
        all += end - first;
        for (unsigned long at = first; touch && all < 256ul * MIB && at < end; at += PAGE) {
            volatile char *byte = (char *)at;
            if (right == 'w') *byte = *byte;
            else (void)*byte;
        }
    }
    fclose(maps);
    return all / MIB;
}

static int check(const char *when, long most, int touch) {
    long writable = walked('w', touch), readable = walked('r', touch);
    printf("%s: %ld MiB writable, %ld MiB readable\n", when, writable, readable);
    return writable > most || readable > 2 * most;
}

int main(int count, char **words) {
    static char *held[400];
    char *one = malloc(LEN);
    if (!one) return 2;
    memset(one, 1, LEN);
    if (count > 1 && !strcmp(words[1], "lock")) {
        if (mlockall(MCL_CURRENT) != 0) {
            printf("mlockall: %s\n", strerror(errno));
            return 0;
        }
        FILE *status = fopen("/proc/self/status", "r");
        char line[256];
        long kib = 0;
        while (fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %ld", &kib);
        printf("locked, of shared memory: %ld KiB\n", kib);
        return kib > MOST * 1024;
    }
    int wrong = check("one", MOST, 1);
    for (int n = 0; n < 400; n++) memset(held[n] = malloc(LEN), n, LEN);
    wrong |= check("four hundred", MOST, 1);
    volatile char *huge = malloc(512 * MIB);
    if (!huge) return 2;
    huge[0] = 1;
    wrong |= check("and a huge one", 512 + MOST, 0);
    free((char *)huge);
    for (int n = 0; n < 400; n += 2) free(held[n]);
    wrong |= check("and half of it", MOST, 1);
    for (int n = 1; n < 400; n += 2) {
        for (int at = 0; at < LEN; at++)
            if (held[n][at] != (char)n) return 3;
        free(held[n]);
    }
    wrong |= check("and none", 16, 1);
    /* A child sees what it saw, and has no more either. */
    if (fork() == 0) _exit(one[LEN - 1] != 1 || check("a child", 16, 1));
    int status;
    if (wait(&status) < 0 || status != 0) return 4;
    for (int n = 0; n < 400; n++) memset(held[n] = malloc(LEN), n, LEN);
    wrong |= check("again", MOST, 1);
    return wrong;
}
