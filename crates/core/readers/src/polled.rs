//! Readers as things that `poll` waits for.

/// Makes a reader one of the things that [`poll`](tranship_core::poll) waits for. The reader has `try_recv`, `arm`, `settle`
/// and `disarm`, its `domain`, and in `ahead` what a poll has found and `try_recv` gives next.
#[macro_export]
macro_rules! polled {
    ($reader:ty) => {
        impl ::tranship_core::topics::Polled for $reader {
            fn domain(&self) -> &::tranship_core::Domain {
                &self.domain
            }

            fn has_something(&mut self) -> bool {
                self.ahead = self.try_recv().transpose();
                self.ahead.is_some()
            }

            fn arm(&mut self) -> Result<::std::time::Duration, ::tranship_core::Error> {
                match <$reader>::arm(self)? {
                    true => Ok(self.settle()),
                    false => Ok(::std::time::Duration::ZERO),
                }
            }

            fn disarm(&mut self) {
                <$reader>::disarm(self);
            }
        }
    };
}
