//! Arrow record batches, written into a buffer and read where they lie.
//!
//! ```
//! # mod tranship { pub use tranship_core::*; pub use tranship_typed as typed; }
//! use std::sync::Arc;
//! use tranship::{Domain, PoolOptions};
//! use tranship::typed::arrow::{self, arrow_array, arrow_schema};
//! use arrow_array::{Array, Float64Array, RecordBatch, cast::AsArray, types::Float64Type};
//! use arrow_schema::{DataType, Field, Schema};
//!
//! let schema = Schema::new(vec![Field::new("x", DataType::Float64, false)]);
//! let column: Arc<dyn Array> = Arc::new(Float64Array::from_iter_values([1.0, 2.0, 3.0]));
//! let batch = RecordBatch::try_new(Arc::new(schema), vec![column])?;
//! let domain = Domain::embedded()?;
//! let pool = domain.create_pool(PoolOptions::new(16 << 20))?;
//! let buffer = arrow::write(&batch, |len| pool.alloc(len))?.freeze(); // to be sent
//!
//! let came = arrow::read(buffer)?; // its columns lie in the buffer
//! assert_eq!(came.column(0).as_primitive::<Float64Type>().value(2), 3.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Public functions use types of these crates. A program that imports the crates from here has the right version.
#[doc(no_inline)]
pub use {arrow_array, arrow_buffer, arrow_schema};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tranship_core::{Buffer, BufferMut, Error, ErrorKind};

/// Counts bytes.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a batch into a buffer of `alloc`'s, such as a channel's or a pool's, as an Arrow IPC stream with its schema.
/// The values are written once, to the place where the receiver reads them. A first pass over the batch finds the
/// length.
///
/// # Errors
/// Of `alloc`; `BufferState`: other domains can write its memory; `BadArgument`: Arrow cannot write the batch.
pub fn write(
    batch: &RecordBatch,
    alloc: impl FnOnce(usize) -> Result<BufferMut, Error>,
) -> Result<BufferMut, Error> {
    let mut count = Count(0);
    stream(batch, &mut count)?;
    let mut buffer = alloc(count.0)?;
    let bytes = buffer.bytes_mut().ok_or_else(|| {
        let text = "other domains can write the pool: a batch is written into a pool of level producer or none";
        Error::new(ErrorKind::BufferState, text)
    })?;
    stream(batch, bytes)?;
    Ok(buffer)
}

fn stream(batch: &RecordBatch, to: impl Write) -> Result<(), Error> {
    let write = || -> Result<(), ArrowError> {
        let mut writer = StreamWriter::try_new(to, &batch.schema())?;
        writer.write(batch)?;
        writer.finish()
    };
    write().map_err(|error| Error::new(ErrorKind::BadArgument, format!("Arrow: {error}")))
}

/// Owner of a batch's memory: Arrow drops it with the last column.
struct Owner(Buffer);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

/// Gives a buffer's bytes to Arrow without copying them, for columns that the program itself makes.
///
/// # Errors
/// `BufferState`: the sender can still change the bytes. The bytes cannot change where the pool's level is `none`,
/// where they were copied or carried, and after `trust_writer`. Otherwise copy them ([`Buffer::to_vec`]).
pub fn buffer(buffer: Buffer) -> Result<arrow_buffer::Buffer, Error> {
    crate::value::unchanging(&buffer)?;
    Ok(bytes::Bytes::from_owner(Owner(buffer)).into())
}

/// Checks a received batch, and returns it. The batch's columns lie in the buffer, and keep the buffer alive.
///
/// # Errors
/// `PeerViolation`: the bytes are not a stream with one batch, a column is not aligned, or a column has values that its
/// type does not allow. `BufferState` as for [`buffer`].
pub fn read(came: Buffer) -> Result<RecordBatch, Error> {
    let mut bytes = buffer(came)?;
    // Arrow's library may panic at bytes that no such library wrote. It holds nothing that a panic could leave half
    // changed.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let mut decoder = StreamDecoder::new().with_require_alignment(true);
        decoder.decode(&mut bytes)
    }));
    let no_batch = |why: &str| {
        let text = format!("bytes came that are no Arrow stream with a batch: {why}");
        Error::new(ErrorKind::PeerViolation, text)
    };
    match read {
        Ok(Ok(Some(batch))) => Ok(batch),
        Ok(Ok(None)) => Err(no_batch("there is none")),
        Ok(Err(error)) => Err(no_batch(&error.to_string())),
        Err(_) => Err(no_batch("the library gave up")),
    }
}
