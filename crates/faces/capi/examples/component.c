/* A component of `tranship run` (examples/27_languages.toml): takes frames, and sends copies on, as many at once as have come. */
#include <stdio.h>
#include <string.h>
#include <tranship/component.h>

#define MOST 16

/* Takes what is there, and sends it on with one wake-up of the next component. */
static tranship_status pass(tranship_receiver *frames, tranship_sender *copies, tranship_error **error)
{
    tranship_buf came[MOST], out[MOST];
    size_t count = 0, made = 0;
    tranship_status status = tranship_recv_many(frames, TRANSHIP_FOREVER, came, MOST, &count, error);

    for (; made < count && status == TRANSHIP_OK; made++) {
        status = tranship_sender_alloc(copies, came[made].len, TRANSHIP_FOREVER, &out[made], error);
        if (status != TRANSHIP_OK)
            break;
        memcpy(tranship_data(&out[made]), tranship_data(&came[made]), came[made].len);
        out[made].word = came[made].word;
    }
    if (status == TRANSHIP_OK)
        status = tranship_send_many(copies, out, made, TRANSHIP_FOREVER, NULL, error);
    while (made > 0)
        tranship_release(&out[--made]); /* of what was sent it does nothing */
    while (count > 0)
        tranship_release(&came[--count]);
    return status;
}

int main(void)
{
    tranship_error *error = NULL;
    tranship_component *component = NULL;
    tranship_receiver *frames = NULL;
    tranship_sender *copies = NULL;
    tranship_status status = tranship_component_connect(&component, &error);

    if (status == TRANSHIP_OK)
        status = tranship_component_receiver(component, "frames", TRANSHIP_FOREVER, &frames, &error);
    if (status == TRANSHIP_OK)
        status = tranship_component_sender(component, "copies", TRANSHIP_FOREVER, &copies, &error);
    while (status == TRANSHIP_OK)
        status = pass(frames, copies, &error);
    if (status == TRANSHIP_ERR_PEER_GONE) /* the camera has sent all */
        status = tranship_wait_taken(copies, TRANSHIP_FOREVER, &error);
    if (status != TRANSHIP_OK)
        fprintf(stderr, "component: %s\n", tranship_error_message(error));
    tranship_error_free(error);
    tranship_receiver_close(frames);
    tranship_sender_close(copies);
    tranship_component_close(component);
    return status != TRANSHIP_OK;
}
