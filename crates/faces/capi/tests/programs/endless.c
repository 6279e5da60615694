/* Sends, or receives, until it is killed. */
#include <stdio.h>
#include <string.h>
#include <tranship.h>

static tranship_error *error;

static int failed(void)
{
    fprintf(stderr, "endless: %s\n", tranship_error_message(error));
    return 1;
}

int main(int count, char **words)
{
    tranship_domain *domain;
    tranship_pool *pool;
    tranship_listener *listener;
    tranship_sender *sender;
    tranship_receiver *receiver;
    tranship_buf buf;

    if (count != 2 || tranship_connect(NULL, &domain, &error) != TRANSHIP_OK)
        return failed();
    if (strcmp(words[1], "receive") == 0) {
        if (tranship_open_receiver(domain, "endless", NULL, TRANSHIP_FOREVER, &receiver, &error) != TRANSHIP_OK)
            return failed();
        while (tranship_recv(receiver, TRANSHIP_FOREVER, &buf, &error) == TRANSHIP_OK)
            tranship_release(&buf);
        return failed();
    }
    if (tranship_pool_create(domain, 1 << 20, NULL, &pool, &error) != TRANSHIP_OK ||
        tranship_listen(domain, "endless", TRANSHIP_SENDER, NULL, &listener, &error) != TRANSHIP_OK ||
        tranship_accept_sender(listener, TRANSHIP_FOREVER, &sender, &error) != TRANSHIP_OK)
        return failed();
    for (uint64_t word = 0;; word++) {
        if (tranship_alloc(pool, 10000, TRANSHIP_FOREVER, &buf, &error) != TRANSHIP_OK)
            return failed();
        memset(buf.ptr, (int)(word % 256), buf.len);
        buf.word = word;
        if (tranship_freeze(&buf, &error) != TRANSHIP_OK || tranship_send(sender, &buf, TRANSHIP_FOREVER, &error) != TRANSHIP_OK)
            return failed();
    }
}
