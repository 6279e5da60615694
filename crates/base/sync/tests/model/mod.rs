//! The way in which loom runs here.

/// loom with a bound on preemptions (LOOM_MAX_PREEMPTIONS overrides it): two find every mutation named in the
/// tests.
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(model);
}
