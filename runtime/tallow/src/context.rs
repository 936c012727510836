//! Errors with words about what was being done: the [`Context`] trait and [`bail!`](crate::bail), named as in candle.

use crate::{Error, Result};
use std::fmt::Display;

/// Adds words to an error, or makes one from an absent value.
///
/// ```
/// use tallow::{Context, Result};
/// fn port(text: &str) -> Result<u16> {
///     let digits = text.strip_prefix("port ").context("no port was given")?;
///     digits.parse().with_context(|| format!("the port '{digits}'"))
/// }
/// assert_eq!(port("port 80")?, 80);
/// assert_eq!(port("80").unwrap_err().to_string(), "no port was given");
/// assert_eq!(port("port x").unwrap_err().to_string(), "the port 'x': invalid digit found in string");
/// # Ok::<(), tallow::Error>(())
/// ```
pub trait Context<T> {
    /// With these words before the error's own.
    fn context(self, context: impl Display) -> Result<T>;

    /// With words that are made only if there is an error.
    fn with_context<C: Display>(self, context: impl FnOnce() -> C) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Context<T> for Result<T, E> {
    fn context(self, context: impl Display) -> Result<T> {
        self.map_err(|error| Error::wrap(context, error))
    }

    fn with_context<C: Display>(self, context: impl FnOnce() -> C) -> Result<T> {
        self.map_err(|error| Error::wrap(context(), error))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, context: impl Display) -> Result<T> {
        self.ok_or_else(|| Error::msg(context.to_string()))
    }

    fn with_context<C: Display>(self, context: impl FnOnce() -> C) -> Result<T> {
        self.ok_or_else(|| Error::msg(context().to_string()))
    }
}

/// Returns from the function with an [`Error::Msg`](crate::Error::Msg) of a format string.
///
/// ```
/// use tallow::{Result, bail};
/// fn half(n: usize) -> Result<usize> {
///     if n % 2 == 1 {
///         bail!("{n} is odd");
///     }
///     Ok(n / 2)
/// }
/// assert_eq!(half(3).unwrap_err().to_string(), "3 is odd");
/// ```
#[macro_export]
macro_rules! bail {
    ($($arg:tt)+) => {
        return ::core::result::Result::Err($crate::Error::msg(::std::format!($($arg)+)).into())
    };
}
