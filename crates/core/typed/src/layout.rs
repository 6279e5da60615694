//! What both ends of a channel compare: names, types and places, as a text.

use std::fmt::{self, Display, Write};

/// The layout of a [`Message`], which its derive macro describes.
///
/// Its text is what both ends of a channel compare. It has a line for the type, then one for each field, by rising offsets:
///
/// ```
/// use tranship_typed::{Layout, Message};
///
/// assert_eq!(<[f32; 3]>::layout().to_string(), "[f32; 3]: 12 bytes, aligned to 4\n");
/// let point = Layout::new("Point", 8, 4)
///     .field("x", f32::layout(), 0)
///     .field("y", f32::layout(), 4);
/// assert_eq!(point.to_string(), "Point: 8 bytes, aligned to 4\nx: f32 at 0\ny: f32 at 4\n");
/// ```
///
/// The names of types are Rust's: `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, `bool`, `[T; N]`. A field that is a struct is followed by its own
/// fields, as `pose.x: f64 at 8`. Fields of an array's elements are at offsets within their element, as `points[].x: f32 at 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    name: String,
    bytes: usize,
    align: usize,
    fields: Vec<Field>,
    variants: Vec<(String, i128)>,
    /// Items behind the message: their layout, and the offset of the first.
    items: Option<Box<(Layout, usize)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    layout: Layout,
    offset: usize,
}

impl Layout {
    /// Describes a type of that name and size, in bytes, whose places are multiples of `align` bytes.
    pub fn new(name: impl Into<String>, bytes: usize, align: usize) -> Layout {
        Layout {
            name: name.into(),
            bytes,
            align,
            fields: Vec::new(),
            variants: Vec::new(),
            items: None,
        }
    }

    /// Describes the Rust type `T` under that name, without its fields.
    pub fn of<T>(name: impl Into<String>) -> Layout {
        Layout::new(name, size_of::<T>(), align_of::<T>())
    }

    /// Adds a field of that layout at an offset, in bytes.
    pub fn field(mut self, name: &str, layout: Layout, offset: usize) -> Layout {
        let name = name.into();
        self.fields.push(Field {
            name,
            layout,
            offset,
        });
        self
    }

    /// Adds a variant of an enum.
    pub fn variant(mut self, name: &str, value: i128) -> Layout {
        self.variants.push((name.into(), value));
        self
    }

    /// Describes `N` of these in a row.
    pub(crate) fn times(self, count: usize) -> Layout {
        let name = format!("[{}; {count}]", self.name);
        let mut array = Layout::new(name, self.bytes * count, self.align);
        array.fields.push(Field {
            name: "[]".into(),
            layout: self,
            offset: 0,
        });
        array
    }

    /// Describes this with items of another layout behind it, the first at that offset.
    pub(crate) fn followed_by(mut self, items: Layout, offset: usize) -> Layout {
        self.items = Some(Box::new((items, offset)));
        self
    }

    /// Returns the name of the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fixed size, in bytes: without items behind it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes a line for each field, whose name begins with `path`.
    fn lines(&self, path: &str, base: usize, f: &mut impl Write) -> fmt::Result {
        for (name, value) in &self.variants {
            writeln!(f, "{path}{name} = {value}")?;
        }
        let mut fields: Vec<&Field> = self.fields.iter().collect();
        fields.sort_by_key(|field| field.offset);
        for Field {
            name,
            layout,
            offset,
        } in fields
        {
            let offset = base + offset;
            match name.as_str() {
                // An array's line says what its elements are. Their fields are at offsets within the element.
                "[]" => layout.lines(&format!("{}[].", path.trim_end_matches('.')), 0, f)?,
                _ => {
                    writeln!(f, "{path}{name}: {} at {offset}", layout.name)?;
                    layout.lines(&format!("{path}{name}."), offset, f)?;
                }
            }
        }
        Ok(())
    }
}

impl Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout {
            name, bytes, align, ..
        } = self;
        match self.items.as_deref() {
            None => writeln!(f, "{name}: {bytes} bytes, aligned to {align}")?,
            Some((items, offset)) => writeln!(
                f,
                "{name} + [{}]: {bytes} bytes, then items of {} bytes from {offset} on, aligned to {}",
                items.name,
                items.bytes,
                align.max(&items.align)
            )?,
        }
        self.lines("", 0, f)?;
        match self.items.as_deref() {
            Some((items, _)) => items.lines("[].", 0, f),
            None => Ok(()),
        }
    }
}
