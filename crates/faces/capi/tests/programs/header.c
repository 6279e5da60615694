#include <tranship.h>
#include <tranship.h> /* once more does nothing */
#include <tranship/bulk.h>
#include <tranship/cbuf.h>
#include <tranship/mbuf.h>
#include <tranship/uma.h>
#include <tranship/zc.h>

int main(void)
{
    tranship_buf buf;

    buf.kind = TRANSHIP_BUF_NONE;
    buf.ptr = NULL;
    return tranship_data(&buf) != NULL && TRANSHIP_FOREVER < TRANSHIP_MS(1);
}
