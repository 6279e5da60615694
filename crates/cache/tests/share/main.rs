//! Values by reference in other processes: read where they lie, unchanged as long as they are held, whatever becomes of the key; and readers who hold too
//! much, die, or lie.

mod bounds;
mod hostile;
mod kit;
mod place;
