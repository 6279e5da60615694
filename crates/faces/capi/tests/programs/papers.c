/* The CBUF paper's own program: a cbuf that is allocated, sent, mapped and freed. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/cbuf.h>
#include <unistd.h>

#include "check.h"

#define OK(call) EXPECT(call, TRANSHIP_OK)

static char manager[108];

static tranship_domain *join(const char *name)
{
    /* A thread that waits for its own pipe takes no news of the manager: the helper thread does. */
    tranship_domain_options options = {
        .size = sizeof options, .name = name, .socket = manager, .flags = TRANSHIP_DOMAIN_HELPER_THREAD};
    tranship_domain *domain;

    OK(tranship_connect(&options, &domain, NULL));
    return domain;
}

static void *cbuf_server(void *id)
{
    tranship_domain *domain = join("server");
    tranship_receiver *from;
    cbuf_t cb, same;

    OK(tranship_open_receiver(domain, "cbufs", NULL, TRANSHIP_FOREVER, &from, NULL));
    OK(cbuf_recv(from, &cb));
    EXPECT(cbuf2buf(&cb, 0) == NULL, 1);
    EXPECT(cbuf2buf(&cb, 4097) == NULL, 1);
    EXPECT(memcmp(cbuf2buf(&cb, 1), "_", 1), 0);
    *(uint64_t *)id = cbuf_id(&cb);
    OK(cbuf_ref(&cb, &same));
    cbuf_free(&cb);
    EXPECT(memcmp(cbuf2buf(&same, 4096), "_", 1), 0);
    cbuf_free(&same);
    EXPECT(cbuf_recv(from, &cb), TRANSHIP_OK); /* by cbuf_send_free */
    cbuf_free(&cb);
    EXPECT(cbuf_recv(from, &cb), TRANSHIP_ERR_PEER_GONE);
    tranship_receiver_close(from);
    tranship_domain_close(domain);
    return NULL;
}

static void cbufs(tranship_domain *domain)
{
    tranship_listener *listener;
    tranship_sender *to;
    tranship_pool *pool;
    pthread_t server;
    uint64_t id = 0;
    cbuf_t cb;

    OK(tranship_pool_create(domain, 1 << 20, NULL, &pool, NULL));
    OK(tranship_listen(domain, "cbufs", TRANSHIP_SENDER, NULL, &listener, NULL));
    pthread_create(&server, NULL, cbuf_server, &id);
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, &to, NULL));
    char *bytes = cbuf_alloc(pool, 4096, &cb);
    EXPECT(bytes != NULL, 1);
    *bytes = '_';
    OK(cbuf_send(to, &cb));
    EXPECT(((const char *)cbuf2buf(&cb, 1))[0], '_'); /* still ours */
    uint64_t here = cbuf_id(&cb);
    cbuf_free(&cb);
    EXPECT(cbuf_alloc(pool, (size_t)1 << 40, &cb) == NULL, 1);
    EXPECT(cbuf_alloc(pool, 100, &cb) != NULL, 1);
    OK(cbuf_send_free(to, &cb));
    EXPECT(cb.kind, TRANSHIP_BUF_NONE);
    tranship_sender_close(to);
    pthread_join(server, NULL);
    EXPECT(id == here && id != 0, 1); /* the same name in both */
    tranship_listener_close(listener);
    tranship_pool_close(pool);
}

static int by_pipe[2];

/* Ids come by a pipe, in another order than the buffers. */
static void *id_server(void *unused)
{
    tranship_domain *domain = join("ids");
    tranship_receiver *from;
    tranship_inbox *inbox;
    uint64_t ids[3];
    cbuf_t cb, other;

    OK(tranship_open_receiver(domain, "ids", NULL, TRANSHIP_FOREVER, &from, NULL));
    EXPECT(tranship_inbox_create(from, 0, &inbox, NULL), TRANSHIP_ERR_BAD_ARGUMENT); /* from is still here */
    OK(tranship_inbox_create(from, 8, &inbox, NULL));
    EXPECT(read(by_pipe[0], ids, sizeof ids), sizeof ids);
    EXPECT(memcmp(cbuf_id2buf(inbox, ids[1], 4096, &cb), "1", 1), 0);
    EXPECT(cbuf_id(&cb) == ids[1], 1);
    EXPECT(memcmp(cbuf_id2buf(inbox, ids[0], 1, &other), "0", 1), 0);
    cbuf_free(&cb);
    cbuf_free(&other);
    EXPECT(cbuf_id2buf(inbox, ids[0], 1, &cb) == NULL, 1); /* was sent once */
    EXPECT(cb.kind, TRANSHIP_BUF_NONE);
    EXPECT(cbuf_id2buf(inbox, ids[2], 1, &cb) == NULL, 1); /* was never sent */
    EXPECT(tranship_inbox_take(inbox, ids[2], &cb, NULL), TRANSHIP_ERR_STALE);
    EXPECT(tranship_inbox_take(inbox, 0, &cb, NULL), TRANSHIP_ERR_STALE);
    EXPECT(cbuf_id2buf(inbox, ids[1], 4097, &cb) == NULL, 1); /* sent twice, and too short */
    EXPECT(cb.kind, TRANSHIP_BUF_NONE);
    EXPECT(tranship_inbox_take(inbox, ids[1], &cb, NULL), TRANSHIP_ERR_STALE); /* the second is used up */
    EXPECT(tranship_inbox_clear(inbox), 0);
    tranship_inbox_close(inbox);
    EXPECT(tranship_inbox_take(NULL, 1, &cb, NULL), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_domain_close(domain);
    return unused;
}

static void ids_alone(tranship_domain *domain)
{
    tranship_listener *listener;
    tranship_sender *to;
    tranship_pool *pool;
    pthread_t server;
    uint64_t ids[3];
    cbuf_t cb[3];

    EXPECT(pipe(by_pipe), 0);
    OK(tranship_pool_create(domain, 1 << 20, NULL, &pool, NULL));
    OK(tranship_listen(domain, "ids", TRANSHIP_SENDER, NULL, &listener, NULL));
    pthread_create(&server, NULL, id_server, NULL);
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, &to, NULL));
    for (int i = 0; i < 3; i++) {
        char *bytes = (char *)cbuf_alloc(pool, 4096, &cb[i]);

        THERE(bytes);
        *bytes = (char)('0' + i);
        ids[i] = cbuf_id(&cb[i]);
    }
    OK(cbuf_send(to, &cb[0]));
    OK(cbuf_send(to, &cb[1]));
    OK(cbuf_send(to, &cb[1]));
    EXPECT(write(by_pipe[1], ids, sizeof ids), sizeof ids);
    pthread_join(server, NULL);
    for (int i = 0; i < 3; i++)
        cbuf_free(&cb[i]);
    tranship_sender_close(to);
    tranship_listener_close(listener);
    tranship_pool_close(pool);
}
int main(void)
{
    tranship_domain *domain;

    OK(tranship_embedded(NULL, &domain, NULL));
    tranship_domain_socket(domain, manager, sizeof manager);
    cbufs(domain);
    ids_alone(domain);
    tranship_domain_close(domain);
    puts("as in the papers");
    return 0;
}
