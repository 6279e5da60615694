//! A value: one buffer or several, read-only.

use tranship_core::{Aggregate, Body, Buffer, Error, Pool};

/// Value that a store keeps under a key: one buffer or several. Clones are counts, and share the memory.
#[derive(Clone, Debug)]
pub struct Value {
    pieces: Vec<Buffer>,
}

impl Value {
    /// Makes a value of buffers, in their order. `None`: there is none.
    pub fn new(pieces: Vec<Buffer>) -> Option<Value> {
        (!pieces.is_empty()).then_some(Value { pieces })
    }

    /// Returns the buffers.
    pub fn pieces(&self) -> &[Buffer] {
        &self.pieces
    }

    /// Returns the buffers, and ends the value.
    pub fn into_pieces(self) -> Vec<Buffer> {
        self.pieces
    }

    /// Returns the number of bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Reads the value that a message carries. `None`: it carries none.
    pub(crate) fn of(body: Body) -> Option<Value> {
        match body {
            Body::Buffer(buffer) => Value::new(vec![buffer]),
            Body::BufferMut(buffer) => Value::new(vec![buffer.freeze()]),
            Body::Aggregate(all) => Value::new(all.pieces().iter().cloned().collect()),
            Body::AggregateMut(all) => Value::new(all.freeze().pieces().iter().cloned().collect()),
            Body::Inline(_) | Body::Released(_) => None,
        }
    }

    /// Lays the pieces into a message, behind those that it has.
    pub(crate) fn lay(&self, message: &mut Aggregate) -> Result<(), Error> {
        for piece in &self.pieces {
            message
                .push_back(piece.clone())
                .map_err(|failed| failed.error)?;
        }
        Ok(())
    }

    /// Copies it to a pool.
    pub(crate) fn copy_to(&self, pool: &Pool) -> Result<Value, Error> {
        let copy = |piece: &Buffer| Ok(pool.copy(&piece.to_vec())?.freeze());
        let pieces: Result<Vec<Buffer>, Error> = self.pieces.iter().map(copy).collect();
        pieces.map(|pieces| Value { pieces })
    }
}
