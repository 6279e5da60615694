//! Sealed memfds, windows, bounds-checked views, shared layouts.
