//! Moves large data between isolated processes without copying it.
