pub fn play(_stage: &crate::stage::Stage) {}
