/* The CBUF paper's own program: a cbuf that is allocated, sent, mapped and freed. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tranship/cbuf.h>

#include "check.h"

#define OK(call) EXPECT(call, TRANSHIP_OK)

static char manager[108];

static tranship_domain *join(const char *name)
{
    tranship_domain_options options = {.size = sizeof options, .name = name, .socket = manager};
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

int main(void)
{
    tranship_domain *domain;

    OK(tranship_embedded(NULL, &domain, NULL));
    tranship_domain_socket(domain, manager, sizeof manager);
    cbufs(domain);
    tranship_domain_close(domain);
    puts("as in the papers");
    return 0;
}
