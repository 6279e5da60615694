//! The text: its grammar, what clients' names do to it, its size, and that the dashboard asks for what there is.

mod text {
    mod dashboard;
    mod grammar;
    mod kit;
    mod series;
}
