/* Inside: takes one message from "ask", and sends every byte of it, plus one, to "answer". Says how it sees itself. */
#include <stdio.h>
#include <tranship.h>
#include <unistd.h>

int main(void)
{
    tranship_error *error = NULL;
    tranship_domain *domain = NULL;
    tranship_pool *pool = NULL;
    tranship_receiver *asks = NULL;
    tranship_sender *answers = NULL;
    tranship_buf asked = {0}, answer = {0};
    int failed = tranship_connect(NULL, &domain, &error) != TRANSHIP_OK ||
                 tranship_pool_create(domain, 16 << 20, NULL, &pool, &error) != TRANSHIP_OK ||
                 tranship_open_receiver(domain, "ask", NULL, TRANSHIP_FOREVER, &asks, &error) != TRANSHIP_OK ||
                 tranship_open_sender(domain, "answer", NULL, TRANSHIP_FOREVER, &answers, &error) != TRANSHIP_OK ||
                 tranship_recv(asks, TRANSHIP_FOREVER, &asked, &error) != TRANSHIP_OK ||
                 tranship_alloc(pool, asked.len, TRANSHIP_FOREVER, &answer, &error) != TRANSHIP_OK;
    if (!failed) {
        const unsigned char *from = tranship_data(&asked);
        unsigned char *to = answer.ptr;
        for (size_t at = 0; at < asked.len; at++)
            to[at] = (unsigned char)(from[at] + 1);
        answer.word = (uint64_t)getpid() << 32 | getuid();
        failed = tranship_send(answers, &answer, TRANSHIP_FOREVER, &error) != TRANSHIP_OK ||
                 tranship_wait_taken(answers, TRANSHIP_FOREVER, &error) != TRANSHIP_OK;
    }
    if (failed)
        fprintf(stderr, "answers.c: %s\n", tranship_error_message(error));
    tranship_release(&asked);
    tranship_release(&answer);
    tranship_sender_close(answers);
    tranship_receiver_close(asks);
    tranship_pool_close(pool);
    tranship_domain_close(domain);
    tranship_error_free(error);
    return failed;
}
