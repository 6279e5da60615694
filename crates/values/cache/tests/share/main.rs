//! Values by reference in other processes: read where they lie, and unchanged as long as they are held, whatever
//! becomes of the key. Also readers that hold too much, die, or lie, and a manager that is killed.

mod bounds;
mod hostile;
mod kit;
mod place;
mod restart;
