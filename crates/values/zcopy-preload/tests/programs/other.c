/* An allocator that a program is linked with. It ends the program when it is given a block that is not its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x6f74686572616c6cULL
#define MOST ((size_t)1 << 30)

struct head {
    uint64_t magic;
    size_t bytes;
};

static _Atomic(char *) memory;
static atomic_size_t used;
static atomic_size_t freed;

static struct head *head_of(void *at)
{
    struct head *head = (struct head *)at - 1;
    if (head->magic != MAGIC)
        abort();
    return head;
}

void *memalign(size_t align, size_t bytes)
{
    char *start = memory;
    if (start == NULL) {
        char *new = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (atomic_compare_exchange_strong(&memory, &start, new))
            start = new;
    }
    if (align < 16)
        align = 16;
    if (bytes > MOST / 2 || align > MOST / 2)
        goto none;
    size_t whole = sizeof(struct head) + align + bytes;
    size_t from = atomic_fetch_add(&used, whole);
    if (from + whole > MOST)
        goto none;
    uintptr_t at = ((uintptr_t)start + from + sizeof(struct head) + align - 1) & ~(align - 1);
    struct head *head = (struct head *)at - 1;
    head->magic = MAGIC;
    head->bytes = bytes;
    return (void *)at;
none:
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t bytes) { return memalign(16, bytes); }

void *calloc(size_t count, size_t bytes)
{
    size_t all;
    return __builtin_mul_overflow(count, bytes, &all) ? NULL : malloc(all);
}

void free(void *at)
{
    if (at == NULL)
        return;
    head_of(at)->magic = 0;
    freed++;
}

size_t malloc_usable_size(void *at) { return at == NULL ? 0 : head_of(at)->bytes; }

void *realloc(void *at, size_t bytes)
{
    void *to = malloc(bytes);
    if (at != NULL && to != NULL) {
        size_t has = head_of(at)->bytes;
        memcpy(to, at, has < bytes ? has : bytes);
        head_of(at)->magic = 0;
    }
    return to;
}

/* Calls go to the first library, and end here: also those with blocks that no other library can know. */
__attribute__((constructor)) static void mixes(void)
{
    void (*volatile first_free)(void *) = free;
    void *at = memalign(64, 100);
    size_t before = freed;
    first_free(at);
    if (freed != before + 1)
        abort();
}
