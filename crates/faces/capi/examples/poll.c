/* A poll loop: accepts whoever opens "events" to send, receives from all of them, and reads standard input beside that until it ends. */
#include <stdio.h>
#include <unistd.h>
#include <tranship.h>

enum { MOST = 16, FIRST = 2 };

int main(void)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_listener *listener = NULL;
    tranship_poll_item items[FIRST + MOST] = {{0}};
    size_t count = FIRST, ready, got = 0, open = 1;

    if (tranship_connect(NULL, &domain, &error) != TRANSHIP_OK ||
        tranship_listen(domain, "events", TRANSHIP_RECEIVER, NULL, &listener, &error) != TRANSHIP_OK)
        goto failed;
    items[0].object = listener;
    items[1].kind = TRANSHIP_POLL_READABLE;
    items[1].fd = STDIN_FILENO;
    while (open || count > FIRST) {
        /* The next one stays in the listener until there is a place for it. */
        items[0].kind = open && count < FIRST + MOST ? TRANSHIP_POLL_LISTENER : 0;
        if (tranship_poll(items, count, TRANSHIP_FOREVER, &ready, &error) != TRANSHIP_OK)
            goto failed;
        for (size_t i = count; i-- > FIRST;) {
            tranship_buf buf;
            tranship_status status = TRANSHIP_OK;

            while (items[i].ready && status == TRANSHIP_OK) {
                status = tranship_recv(items[i].object, TRANSHIP_NOW, &buf, NULL);
                got += status == TRANSHIP_OK;
                tranship_release(&buf);
            }
            if (items[i].ready && status != TRANSHIP_ERR_TIMED_OUT) { /* it has ended */
                printf("one has ended: %s\n", tranship_strerror(status));
                tranship_receiver_close(items[i].object);
                items[i] = items[--count];
            }
        }
        if (items[0].ready) {
            tranship_receiver *receiver;

            if (tranship_accept_receiver(listener, TRANSHIP_MS(100), &receiver, NULL) == TRANSHIP_OK) {
                items[count].kind = TRANSHIP_POLL_RECEIVER;
                items[count++].object = receiver;
            }
        }
        if (items[1].ready) {
            char line[64];

            if (read(STDIN_FILENO, line, sizeof line) <= 0) { /* no newcomers any more */
                items[1].kind = 0;
                open = 0;
            }
        }
    }
    printf("%zu messages\n", got);
    tranship_listener_close(listener);
    tranship_domain_close(domain);
    return 0;
failed:
    fprintf(stderr, "poll: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    return 1;
}
