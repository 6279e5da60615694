/* Packets over a pool go to another domain as they lie: clusters by reference, headers with a copy; and come back as packets. */
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <tranship/mbufs.h>

static tranship_mbufs *mbufs;
#define TRANSHIP_MBUFS mbufs
#include <tranship/mbuf.h>

#define OK(call) EXPECT(call, TRANSHIP_OK)

static char manager[108];
static uint64_t sent_id;

static void *other(void *unused)
{
    tranship_domain_options options = {.size = sizeof options, .name = "other", .socket = manager};
    tranship_domain *domain;
    tranship_receiver *from;
    tranship_buf buf;
    struct mbuf *m, *n;
    char bytes[14], *again;

    OK(tranship_connect(&options, &domain, NULL));
    OK(tranship_open_receiver(domain, "packets", NULL, TRANSHIP_FOREVER, &from, NULL));
    OK(tranship_recv(from, TRANSHIP_FOREVER, &buf, NULL));
    EXPECT(buf.kind, TRANSHIP_BUF_AGGREGATE);
    OK(m_frombuf(&buf, &m));
    EXPECT(buf.kind, TRANSHIP_BUF_NONE);
    EXPECT(m_pktlen(m), 14 + 1500);
    n = m_next(m);
    EXPECT(tranship_m_bufid(n) == sent_id, 1); /* the very buffer */
    EXPECT(m_flags(n) & (M_EXT | M_VOLATILE), M_EXT | M_VOLATILE);
    EXPECT(M_WRITABLE(m) | M_WRITABLE(n) | M_LEADINGSPACE(m), 0);
    EXPECT(m_copydata(m, 0, 14, bytes), 0);
    EXPECT(memcmp(bytes, "ethernet head", 13), 0);
    m = m_pullup(m, 20); /* a copy: its writer cannot change it any more */
    EXPECT(m_flags(m) & M_VOLATILE, 0);
    EXPECT(memcmp(mtod(m, char *) + 14, "payload", 6), 0);
    M_PREPEND(m, 4, M_NOWAIT);
    EXPECT(m_pktlen(m), 4 + 14 + 1500);
    m_freem(m);
    /* One cluster is one buffer. */
    OK(tranship_recv(from, TRANSHIP_FOREVER, &buf, NULL));
    EXPECT(buf.kind, TRANSHIP_BUF_SHARED);
    again = buf.ptr;
    OK(m_frombuf(&buf, &m));
    EXPECT(m_data(m) == again, 1);
    m_freem(m);
    /* Inline bytes are copied. */
    OK(tranship_recv(from, TRANSHIP_FOREVER, &buf, NULL));
    EXPECT(buf.kind, TRANSHIP_BUF_INLINE);
    OK(m_frombuf(&buf, &m));
    EXPECT(M_WRITABLE(m), 1);
    EXPECT(memcmp(m_data(m), "small", 5), 0);
    m_freem(m);
    EXPECT(m_frombuf(&buf, &m), TRANSHIP_ERR_BAD_ARGUMENT); /* nothing is in it */
    NONE(m);
    EXPECT(tranship_recv(from, TRANSHIP_FOREVER, &buf, NULL), TRANSHIP_ERR_PEER_GONE);
    tranship_receiver_close(from);
    tranship_domain_close(domain);
    return unused;
}

int main(void)
{
    tranship_mbuf_options options = {.size = sizeof options};
    tranship_domain *domain;
    tranship_listener *listener;
    tranship_sender *to;
    tranship_pool *pool;
    tranship_buf buf;
    struct mbuf *m;
    pthread_t thread;

    OK(tranship_embedded(NULL, &domain, NULL));
    tranship_domain_socket(domain, manager, sizeof manager);
    OK(tranship_pool_create(domain, 4 << 20, NULL, &pool, NULL));
    options.pool = pool;
    OK(tranship_mbufs_create(&options, &mbufs, NULL));
    OK(tranship_listen(domain, "packets", TRANSHIP_SENDER, NULL, &listener, NULL));
    /* One cluster with the payload, in front of it an mbuf with a header. */
    m = m_getcl(M_NOWAIT, MT_DATA, M_PKTHDR);
    EXPECT(m_setlen(m, 1500), 0);
    memcpy(m_data(m), "payload", 7);
    sent_id = tranship_m_bufid(m);
    EXPECT(sent_id != 0, 1);
    M_PREPEND(m, 14, M_NOWAIT);
    memcpy(m_data(m), "ethernet header", 14);
    EXPECT(tranship_m_bufid(m) == 0, 1);
    EXPECT(M_WRITABLE(m_next(m)), 1);
    pthread_create(&thread, NULL, other, NULL);
    OK(tranship_accept_sender(listener, TRANSHIP_FOREVER, &to, NULL));
    OK(m_tobuf(m, pool, &buf));
    EXPECT(buf.len, 1514);
    OK(tranship_send(to, &buf, TRANSHIP_FOREVER, NULL));
    EXPECT(M_WRITABLE(m_next(m)), 0); /* it was sent */
    m_freem(m);
    m = m_getcl(M_NOWAIT, MT_DATA, M_PKTHDR);
    EXPECT(m_setlen(m, 100), 0);
    OK(m_tobuf(m, pool, &buf));
    m_freem(m);
    OK(tranship_send(to, &buf, TRANSHIP_FOREVER, NULL));
    OK(tranship_send_bytes(to, "small", 5, 0, TRANSHIP_FOREVER, NULL));
    EXPECT(m_tobuf(NULL, pool, &buf), TRANSHIP_ERR_BAD_ARGUMENT);
    tranship_sender_close(to);
    pthread_join(thread, NULL);
    tranship_mbufs_close(mbufs);
    mbufs = NULL; /* the process's own from here on: in private memory */
    m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
    EXPECT(M_SIZE(m), MCLBYTES);
    EXPECT(tranship_m_bufid(m) == 0, 1);
    m_freem(m);
    tranship_listener_close(listener);
    tranship_pool_close(pool);
    tranship_domain_close(domain);
    puts("packets cross");
    return 0;
}
