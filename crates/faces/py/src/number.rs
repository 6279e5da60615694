//! Whole numbers that Python gives: one that does not fit is an error that names the argument.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// An argument. It is checked when its name is known.
pub(crate) struct Number(Result<u64, String>);

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Number> {
        match object.extract() {
            Ok(number) => Ok(Number(Ok(number))),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Ok(Number(Err(object.str()?.to_string())))
            }
            Err(error) => Err(error),
        }
    }
}

/// Largest value that a [`Number`] may have.
pub(crate) trait Whole: TryFrom<u64> {
    const MAX: u64;
}

impl Whole for u32 {
    const MAX: u64 = u32::MAX as u64;
}

impl Whole for u64 {
    const MAX: u64 = u64::MAX;
}

/// A length of Python's: it is no longer than an address can reach.
impl Whole for usize {
    const MAX: u64 = isize::MAX as u64;
}

impl Number {
    /// Makes a default.
    pub(crate) const fn of(number: u64) -> Number {
        Number(Ok(number))
    }

    pub(crate) fn named<T: Whole>(self, name: &str) -> PyResult<T> {
        let said = match self.0 {
            Ok(number) => match T::try_from(number) {
                Ok(fits) if number <= T::MAX => return Ok(fits),
                _ => number.to_string(),
            },
            Err(said) => said,
        };
        let text = format!(
            "{name} is {said}: it is a whole number from 0 to {}",
            T::MAX
        );
        Err(PyValueError::new_err(text))
    }
}

/// Returns [`Number::named`] of a number that may be absent.
pub(crate) fn perhaps<T: Whole>(number: Option<Number>, name: &str) -> PyResult<Option<T>> {
    number.map(|number| number.named(name)).transpose()
}
