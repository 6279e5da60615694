/* A pool, a listener and a domain are closed while another thread is in a call with them: what that call needs stays until it is over. (That the
 * handle itself is gone is why no call may begin.) Freed memory is overwritten: MALLOC_PERTURB_. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <tranship.h>
#include <unistd.h>

static tranship_error *error;
static tranship_domain *domain;
static tranship_listener *listener;
static tranship_pool *pool;
static atomic_int begun;
static int wakes[2];

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TRANSHIP_OK) {                                                               \
            fprintf(stderr, "%s: %s\n", #call, tranship_error_message(error));                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void *accepts(void *sender)
{
    atomic_store(&begun, (int)syscall(SYS_gettid));
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, sender, &error));
    return NULL;
}

static void *polls(void *unused)
{
    tranship_poll_item items[2] = {{.kind = TRANSHIP_POLL_LISTENER, .object = listener},
                                   {.kind = TRANSHIP_POLL_READABLE, .fd = wakes[0]}};

    atomic_store(&begun, (int)syscall(SYS_gettid));
    OK(tranship_poll(items, 2, TRANSHIP_FOREVER, NULL, &error));
    return unused;
}

/* Until the thread sleeps: it is in its call. */
static void wait_until_asleep(void)
{
    char path[64], state = 'R';

    while (atomic_load(&begun) == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&begun));
    while (state != 'S') {
        FILE *file = fopen(path, "r");

        if (!file || fscanf(file, "%*d %*[^)]) %c", &state) != 1)
            exit(2);
        fclose(file);
        sched_yield();
    }
    atomic_store(&begun, 0);
}

static void *allocates(void *buf)
{
    atomic_store(&begun, (int)syscall(SYS_gettid));
    OK(tranship_alloc(pool, 64 << 10, TRANSHIP_FOREVER, buf, &error));
    return NULL;
}

/* Memory is waited for while the pool's handle goes, and with what others have the pool: it stays until the call is over. */
static void wait_for_memory(void)
{
    tranship_pool_options options = {.size = sizeof options, .chunk_bytes = 64 << 10};
    tranship_error *error_here = NULL;
    tranship_buf all, buf;
    pthread_t thread;

    OK(tranship_pool_create(domain, 64 << 10, &options, &pool, &error));
    OK(tranship_alloc(pool, 64 << 10, TRANSHIP_FOREVER, &all, &error));
    pthread_create(&thread, NULL, allocates, &buf);
    wait_until_asleep();
    tranship_pool_close(pool);
    tranship_release(&all);
    for (int i = 0; i < 100; i++)
        OK(tranship_domain_turn(domain, &error_here)); /* which would take down what nobody has */
    pthread_join(thread, NULL);
    memset(buf.ptr, 1, buf.len);
    tranship_release(&buf);
}

int main(void)
{
    tranship_domain_options options = {.size = sizeof options, .name = "peer"};
    tranship_domain *peer;
    tranship_receiver *receiver;
    tranship_sender *sender = NULL;
    pthread_t thread;
    char socket[108];

    OK(tranship_embedded(NULL, &domain, &error));
    tranship_domain_socket(domain, socket, sizeof socket);
    options.socket = socket;
    OK(tranship_connect(&options, &peer, &error));
    if (pipe(wakes) != 0)
        return 2;
    for (int i = 0; i < 20; i++)
        wait_for_memory();
    OK(tranship_listen(domain, "polled", TRANSHIP_SENDER, NULL, &listener, &error));
    pthread_create(&thread, NULL, polls, NULL);
    wait_until_asleep();
    tranship_listener_close(listener);
    if (write(wakes[1], "", 1) != 1)
        return 2;
    pthread_join(thread, NULL);
    OK(tranship_listen(domain, "accepted", TRANSHIP_SENDER, NULL, &listener, &error));
    pthread_create(&thread, NULL, accepts, &sender);
    wait_until_asleep();
    tranship_listener_close(listener);
    tranship_domain_close(domain);
    OK(tranship_open_receiver(peer, "accepted", NULL, TRANSHIP_FOREVER, &receiver, &error));
    pthread_join(thread, NULL);
    tranship_sender_close(sender);
    tranship_receiver_close(receiver);
    tranship_domain_close(peer);
    puts("what was in use stayed");
    return 0;
}
