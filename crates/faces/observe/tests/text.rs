//! The text: its grammar, the effect of clients' names on it, its size, and that the dashboard asks for existing
//! series.

mod text {
    mod dashboard;
    mod grammar;
    mod kit;
    mod series;
}
