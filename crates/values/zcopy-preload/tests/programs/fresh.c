/* Zeros that nobody has written take no memory; old bytes never come back as zeros. All ways to get memory give it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Walloc-size-larger-than="

#define CHECK(that) do { if (!(that)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #that, errno); exit(1); } } while (0)
enum { MIB = 1 << 20 };

static long resident(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kib);
    fclose(status);
    return kib / 1024;
}

static int is_zero(const char *at, size_t len) { return at[0] == 0 && memcmp(at, at + 1, len - 1) == 0; }

int main(void) {
    long before = resident();
    char *large = calloc(1024, MIB);
    CHECK(large && resident() - before < 64);
    CHECK(large[0] == 0 && large[512l * MIB] == 0 && large[1024l * MIB - 1] == 0);
    free(large);
    for (size_t len = 5000; len < 8 * MIB; len = len * 5 / 4) {
        char *held[8];
        for (int n = 0; n < 8; n++) {
            CHECK(held[n] = malloc(len));
            memset(held[n], 0xee, malloc_usable_size(held[n]));
        }
        for (int n = 0; n < 8; n++) free(held[n]);
        for (int n = 0; n < 8; n++) {
            CHECK((held[n] = calloc(len, 1)) && is_zero(held[n], len));
            memset(held[n], 0xdd, len);
        }
        for (int n = 0; n < 8; n++) free(held[n]);
    }
    errno = 0;
    CHECK(calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);

    /* As C23 has them, which few C libraries do: the preloaded library's, else as free(3). */
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    CHECK(sized && aligned);
    for (size_t len = 16; len < 4 * MIB; len *= 3) {
        for (int n = 0; n < 40; n++) {
            char *page = valloc(len), *pages = pvalloc(len), *plain = malloc(len), *wide = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
            CHECK(page && pages && plain && wide);
            CHECK((uintptr_t)page % 4096 == 0 && (uintptr_t)pages % 4096 == 0 && (uintptr_t)wide % 4096 == 0);
            CHECK(malloc_usable_size(page) >= len && malloc_usable_size(pages) >= (len + 4095) / 4096 * 4096);
            memset(page, 1, len);
            memset(pages, 2, (len + 4095) / 4096 * 4096);
            free(page);
            free(pages);
            sized(plain, len);
            aligned(wide, 4096, (len + 4095) / 4096 * 4096);
        }
    }
    sized(NULL, 7);
    aligned(NULL, 16, 7);
    errno = 0;
    CHECK(pvalloc(SIZE_MAX - 5) == NULL && errno == ENOMEM);

    /* What is kept for later goes back when it is asked for. */
    char *some[40];
    for (int n = 0; n < 40; n++) memset(some[n] = malloc(65536), 1, 65536);
    for (int n = 0; n < 40; n++) free(some[n]);
    long held = resident();
    malloc_trim(0);
    CHECK(held - resident() >= 1);
    return 0;
}
