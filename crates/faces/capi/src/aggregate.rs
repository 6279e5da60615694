//! Several buffers as one message.

use crate::buf::{BUF_AGGREGATE, Buf, place};
use crate::given::{there, wrong};
use crate::pool::Pool;
use crate::status::{Error, Status, border, quietly};
use facade::{Aggregate, Buffer};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// An aggregate without pieces, in `out`. Its list travels in a buffer of `list_pool`; NULL: of the pool of its first piece that is this
/// domain's own.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_aggregate(
    list_pool: Option<&Pool>,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let mut aggregate = Box::<Aggregate>::default();
        if let Some(pool) = list_pool {
            aggregate.set_list_pool(&pool.0);
        }
        out.put_aggregate(aggregate);
        Ok(())
    })
}

fn push(
    aggregate: Option<&mut Buf>,
    piece: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
    front: bool,
) -> Status {
    border(error, || {
        let buf = there(aggregate, "aggregate")?;
        let piece = there(piece, "piece")?;
        let aggregate = buf.aggregate_mut()?;
        let shared = piece.take_shared()?;
        let pushed = match front {
            true => aggregate.insert(0, shared),
            false => aggregate.push_back(shared),
        };
        let len = aggregate.len();
        match pushed {
            Ok(()) => buf.len = len,
            Err(failed) => {
                piece.put_shared(failed.unsent);
                return Err(failed.error);
            }
        }
        Ok(())
    })
}

/// Adds a buffer at the end, frozen and without copying. `piece` then holds nothing; on failure (more than 4096 pieces)
/// it is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_aggregate_push_back(
    aggregate: Option<&mut Buf>,
    piece: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    push(aggregate, piece, error, false)
}

/// Adds a buffer in front, for example a header, frozen and without copying. `piece` then holds nothing; on failure
/// (more than 4096 pieces) it is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_aggregate_push_front(
    aggregate: Option<&mut Buf>,
    piece: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    push(aggregate, piece, error, true)
}

/// Returns how many pieces an aggregate has. 0 of anything else.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_aggregate_count(aggregate: Option<&Buf>) -> usize {
    quietly(0, || {
        let aggregate = aggregate.and_then(Buf::aggregate);
        aggregate.map_or(0, |aggregate| aggregate.pieces().len())
    })
}

/// Gives the address and the length of piece `at`, valid as long as the aggregate exists. tranship_copy_out copies from
/// all pieces.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_aggregate_piece(
    aggregate: Option<&Buf>,
    at: usize,
    ptr: Option<&mut MaybeUninit<*const c_void>>,
    len: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let piece = piece(aggregate, at)?;
        there(ptr, "ptr")?.write(piece.view().as_ptr().cast());
        there(len, "len")?.write(piece.len());
        Ok(())
    })
}

/// Gives another handle of piece `at`, as tranship_buf_clone does: a shared buf, which outlives the aggregate. `out` need
/// not be initialised.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_aggregate_clone_piece(
    aggregate: Option<&Buf>,
    at: usize,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        out.put_shared(piece(aggregate, at)?.clone());
        Ok(())
    })
}

/// Returns a piece, if it is there.
fn piece(aggregate: Option<&Buf>, at: usize) -> Result<&Buffer, facade::Error> {
    let buf = there(aggregate, "aggregate")?;
    if buf.kind != BUF_AGGREGATE {
        return Err(buf.other_kind("an aggregate"));
    }
    let pieces = buf.aggregate().map(Aggregate::pieces);
    let count = pieces.map_or(0, |pieces| pieces.len());
    let piece = pieces.and_then(|pieces| pieces.get(at));
    piece.ok_or_else(|| wrong(format!("piece {at} of an aggregate of {count}")))
}
