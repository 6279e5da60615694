#include <tranship.h>

int main(void)
{
    tranship_buf buf;

    buf.kind = TRANSHIP_BUF_NONE;
    buf.ptr = NULL;
    return tranship_data(&buf) != NULL && TRANSHIP_FOREVER < TRANSHIP_MS(1);
}
