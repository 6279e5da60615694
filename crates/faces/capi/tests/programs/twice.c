/* Gives something back twice, or uses what it gave away: the first argument says which. It has to end by SIGABRT before it gets to the end. */
#include "check.h"
#include <string.h>
#include <tranship.h>
#include <tranship/mbufs.h>
#include <tranship/zones.h>

#define OK(call) EXPECT(call, TRANSHIP_OK)

static tranship_domain *domain;
static tranship_pool *pool;
static tranship_listener *listener;
static tranship_sender *sender;
static tranship_receiver *receiver;
static tranship_error *error;

static void connected(void)
{
    OK(tranship_listen(domain, "local:twice", TRANSHIP_RECEIVER, NULL, &listener, &error));
    OK(tranship_open_sender(domain, "local:twice", NULL, TRANSHIP_FOREVER, &sender, &error));
    OK(tranship_accept_receiver(listener, TRANSHIP_FOREVER, &receiver, &error));
}

static tranship_buf exclusive(void)
{
    tranship_buf buf;

    OK(tranship_alloc(pool, 100, TRANSHIP_FOREVER, &buf, &error));
    return buf;
}

static tranship_buf shared(void)
{
    tranship_buf buf = exclusive();

    OK(tranship_freeze(&buf, &error));
    return buf;
}

static tranship_buf aggregate(void)
{
    tranship_buf buf, piece = exclusive();

    OK(tranship_aggregate(NULL, &buf, &error));
    OK(tranship_aggregate_push_back(&buf, &piece, &error));
    return buf;
}

static tranship_buf received(void)
{
    tranship_buf buf = exclusive();

    connected();
    OK(tranship_freeze(&buf, &error));
    OK(tranship_send(sender, &buf, TRANSHIP_NOW, &error));
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    return buf;
}

static tranship_buf moved(void)
{
    tranship_buf buf = exclusive();

    connected();
    OK(tranship_send(sender, &buf, TRANSHIP_NOW, &error));
    OK(tranship_recv(receiver, TRANSHIP_NOW, &buf, &error));
    return buf;
}

static int is(const char *scene, const char *name)
{
    return strcmp(scene, name) == 0;
}

int main(int count, char **arguments)
{
    const char *scene = count > 1 ? arguments[1] : "";
    tranship_buf buf = {0}, copy, other, out;
    char bytes[1];
    const void *ptr;
    size_t len;

    OK(tranship_embedded(NULL, &domain, &error));
    OK(tranship_pool_create(domain, 1 << 20, NULL, &pool, &error));
    if (is(scene, "release exclusive")) {
        copy = buf = exclusive();
        tranship_release(&buf);
        tranship_release(&copy);
    } else if (is(scene, "release after its memory is another's")) {
        copy = buf = exclusive();
        tranship_release(&buf);
        other = exclusive();
        tranship_release(&copy);
    } else if (is(scene, "release shared")) {
        copy = buf = shared();
        tranship_release(&buf);
        tranship_release(&copy);
    } else if (is(scene, "release one of two handles twice")) {
        buf = shared();
        OK(tranship_buf_clone(&buf, &other, &error));
        copy = other;
        tranship_release(&other);
        tranship_release(&copy);
    } else if (is(scene, "release a part twice")) {
        buf = shared();
        OK(tranship_buf_slice(&buf, 1, 5, &other, &error));
        copy = other;
        tranship_release(&copy);
        tranship_release(&other);
    } else if (is(scene, "release aggregate")) {
        copy = buf = aggregate();
        tranship_release(&buf);
        tranship_release(&copy);
    } else if (is(scene, "release received")) {
        copy = buf = received();
        tranship_release(&buf);
        tranship_release(&copy);
    } else if (is(scene, "release moved")) {
        copy = buf = moved();
        tranship_release(&buf);
        tranship_release(&copy);
    } else if (is(scene, "release sent")) {
        copy = buf = exclusive();
        connected();
        OK(tranship_send(sender, &buf, TRANSHIP_NOW, &error));
        tranship_release(&copy);
    } else if (is(scene, "release frozen")) {
        copy = buf = exclusive();
        OK(tranship_freeze(&buf, &error));
        tranship_release(&copy);
    } else if (is(scene, "send")) {
        connected();
        copy = buf = exclusive();
        tranship_release(&buf);
        tranship_send(sender, &copy, TRANSHIP_NOW, &error);
    } else if (is(scene, "send aggregate")) {
        connected();
        copy = buf = aggregate();
        tranship_release(&buf);
        tranship_send(sender, &copy, TRANSHIP_NOW, &error);
    } else if (is(scene, "move")) {
        connected();
        copy = buf = exclusive();
        OK(tranship_send(sender, &buf, TRANSHIP_NOW, &error));
        tranship_send(sender, &copy, TRANSHIP_NOW, &error);
    } else if (is(scene, "pass")) {
        copy = buf = moved();
        OK(tranship_send_back(receiver, &buf, TRANSHIP_NOW, &error));
        tranship_send_back(receiver, &copy, TRANSHIP_NOW, &error);
    } else if (is(scene, "release_with")) {
        copy = buf = received();
        OK(tranship_send_back_released(receiver, &buf, TRANSHIP_NOW, &error));
        tranship_send_back_released(receiver, &copy, TRANSHIP_NOW, &error);
    } else if (is(scene, "freeze")) {
        copy = buf = exclusive();
        tranship_release(&buf);
        tranship_freeze(&copy, &error);
    } else if (is(scene, "unfreeze")) {
        copy = buf = shared();
        tranship_release(&buf);
        tranship_unfreeze(&copy, &error);
    } else if (is(scene, "clone")) {
        copy = buf = shared();
        tranship_release(&buf);
        tranship_buf_clone(&copy, &out, &error);
    } else if (is(scene, "slice")) {
        copy = buf = shared();
        tranship_release(&buf);
        tranship_buf_slice(&copy, 0, 1, &out, &error);
    } else if (is(scene, "push a piece")) {
        OK(tranship_aggregate(pool, &out, &error));
        copy = buf = shared();
        OK(tranship_aggregate_push_back(&out, &buf, &error));
        tranship_aggregate_push_front(&out, &copy, &error);
    } else if (is(scene, "push onto")) {
        copy = buf = aggregate();
        other = exclusive();
        tranship_release(&buf);
        tranship_aggregate_push_back(&copy, &other, &error);
    } else if (is(scene, "count")) {
        copy = buf = aggregate();
        tranship_release(&buf);
        tranship_aggregate_count(&copy);
    } else if (is(scene, "piece")) {
        copy = buf = aggregate();
        tranship_release(&buf);
        tranship_aggregate_piece(&copy, 0, &ptr, &len, &error);
    } else if (is(scene, "copy_out")) {
        copy = buf = exclusive();
        tranship_release(&buf);
        tranship_copy_out(&copy, 0, bytes, 1, &error);
    } else if (is(scene, "copy_out aggregate")) {
        copy = buf = aggregate();
        tranship_release(&buf);
        tranship_copy_out(&copy, 0, bytes, 1, &error);
    } else if (is(scene, "id")) {
        copy = buf = shared();
        tranship_release(&buf);
        tranship_buf_id(&copy);
    } else if (is(scene, "close pool")) {
        tranship_pool_close(pool);
        tranship_pool_close(pool);
    } else if (is(scene, "close domain")) {
        tranship_domain_close(domain);
        tranship_domain_close(domain);
    } else if (is(scene, "close listener")) {
        connected();
        tranship_listener_close(listener);
        tranship_listener_close(listener);
    } else if (is(scene, "close sender")) {
        connected();
        tranship_sender_close(sender);
        tranship_sender_close(sender);
    } else if (is(scene, "abandon sender")) {
        connected();
        tranship_sender_abandon(sender);
        tranship_sender_abandon(sender);
    } else if (is(scene, "close receiver")) {
        connected();
        tranship_receiver_close(receiver);
        tranship_receiver_close(receiver);
    } else if (is(scene, "free error")) {
        tranship_freeze(NULL, &error);
        tranship_error_free(error);
        tranship_error_free(error);
    } else if (is(scene, "free mbuf") || is(scene, "free packet") || is(scene, "use mbuf")) {
        int packet = is(scene, "free packet");
        struct mbuf *m = packet ? tranship_m_getcl(NULL, 1, 1, 2) : tranship_m_gethdr(NULL, 1, 1);
        tranship_m_freem(m);
        if (is(scene, "use mbuf"))
            tranship_m_append(m, 1, "x");
        tranship_m_freem(m);
    } else if (is(scene, "close mbufs")) {
        tranship_mbufs *mbufs;
        OK(tranship_mbufs_create(NULL, &mbufs, &error));
        tranship_mbufs_close(mbufs);
        tranship_mbufs_close(mbufs);
    } else if (is(scene, "destroy zone")) {
        struct uma_zone *zone = tranship_uma_zcreate("zone", 64, NULL, NULL, NULL, NULL, 7, 0);
        tranship_uma_zdestroy(zone);
        tranship_uma_zdestroy(zone);
    } else {
        printf("no scene is called \"%s\"\n", scene);
        return 1;
    }
    puts("it went on");
    return 0;
}
