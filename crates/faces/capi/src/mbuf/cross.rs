//! Packets to other processes, and from them.

use super::alloc::{Mbufs, those};
use super::{Mbuf, borrowed_whole, given, told};
use crate::buf::{BUF_AGGREGATE, BUF_INLINE, Buf, place};
use crate::given::{there, wrong};
use crate::pool::{self, Pool};
use crate::status::{Error, Status, border};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Makes a message of a chain's bytes, in `out`. Bytes in buffers of a pool are not copied; all others are copied into
/// a buffer of `pool`. The chain stays as it is; bytes that were sent cannot be written any more.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_tobuf(
    m: *const Mbuf,
    pool: Option<&Pool>,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let chain = there(borrowed_whole(m), "m")?;
        let pool = pool::held(pool)?;
        let (all, _copied) = chain.to_aggregate(&pool).map_err(told)?;
        match all.pieces().front().filter(|_| all.pieces().len() == 1) {
            Some(one) => out.put_shared(one.clone()),
            None => out.put_aggregate(Box::new(all)),
        }
        Ok(())
    })
}

/// Makes a packet of a received message, or of a buffer, in `out`. Only inline bytes are copied. `buf` then holds
/// nothing; on failure it is as before. The writer may change the bytes while they are read: only tranship_m_copydata,
/// tranship_m_pullup and the like copy them.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_frombuf(
    from: Option<&Mbufs>,
    buf: Option<&mut Buf>,
    out: Option<&mut MaybeUninit<*mut Mbuf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = there(out, "out")?.write(null_mut());
        let from = there(those(from), "no addresses for mbufs: from")?;
        let buf = there(buf, "buf")?;
        if i32::try_from(buf.len).is_err() {
            return Err(wrong(format!(
                "buf.len is {}: a chain that C counts in an int has at most {} bytes",
                buf.len,
                i32::MAX
            )));
        }
        let chain = match buf.kind {
            BUF_INLINE => {
                let chain = from.devget(buf.inline_to_send()?, 0).map_err(told)?;
                buf.release();
                chain
            }
            BUF_AGGREGATE => match from.from_aggregate(*buf.take_aggregate()?) {
                Ok(chain) => chain,
                Err(failed) => {
                    buf.put_aggregate(Box::new(failed.unreceived));
                    return Err(told(failed.error));
                }
            },
            _ => match from.from_buffer(buf.take_shared()?) {
                Ok(chain) => chain,
                Err(failed) => {
                    buf.put_shared(failed.unreceived);
                    return Err(told(failed.error));
                }
            },
        };
        *out = given(chain);
        Ok(())
    })
}

/// The name of the buffer in which the data of one mbuf lies, as tranship_buf_id says it: it goes to other processes without a copy. 0: in none.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_bufid(m: *const Mbuf) -> u64 {
    let chain = super::borrowed(m);
    let mbuf = chain.as_ref().and_then(|chain| chain.iter().next());
    let buf = mbuf.and_then(|mbuf| mbuf.buffer());
    buf.map_or(0, |buf| buf.id().0)
}
