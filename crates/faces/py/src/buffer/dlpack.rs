//! DLPack: a buffer as a tensor of bytes, for torch, numpy, jax and others. Layouts as in `dlpack.h` 1.0.

use super::held::Bytes;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};

/// The device: memory of the machine.
pub(super) const CPU: i32 = 1;
const READ_ONLY: u64 = 1;
/// Unsigned whole numbers, in `DataType::code`.
const UINT: u8 = 1;
const VERSION: Version = Version { major: 1, minor: 0 };

const NAME: &CStr = c"dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";

/// Request of the consumer.
pub(super) struct Asked {
    pub(super) stream: bool,
    pub(super) version: Option<(u32, u32)>,
    pub(super) device: Option<(i32, i32)>,
    pub(super) copy: Option<bool>,
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    kind: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// Object behind a tensor: a view, which keeps the bytes.
struct Context {
    shape: [i64; 1],
    strides: [i64; 1],
    _view: Py<PyAny>,
}

/// Makes the capsule that `__dlpack__` returns, with the view that keeps the bytes.
pub(super) fn capsule<'py>(
    view: Bound<'py, PyAny>,
    bytes: Bytes,
    asked: &Asked,
) -> PyResult<Bound<'py, PyAny>> {
    let py = view.py();
    if asked.stream {
        return Err(PyValueError::new_err("stream: there is none on a CPU"));
    }
    if asked.device.is_some_and(|device| device != (CPU, 0)) {
        return Err(PyBufferError::new_err("the bytes are in memory of the CPU"));
    }
    if asked.copy == Some(true) {
        return Err(PyBufferError::new_err(
            "a buffer is shown, not copied: use tobytes()",
        ));
    }
    let Bytes { ptr, len, writable } = bytes;
    let context = Box::new(Context {
        shape: [i64::try_from(len).unwrap_or(i64::MAX)],
        strides: [1],
        _view: view.unbind(),
    });
    let context = Box::into_raw(context);
    // SAFETY: just made.
    let (shape, strides) = unsafe { (&raw mut (*context).shape, &raw mut (*context).strides) };
    let tensor = Tensor {
        data: ptr.as_ptr().cast(),
        device: Device { kind: CPU, id: 0 },
        dimensions: 1,
        kind: DataType {
            code: UINT,
            bits: 8,
            lanes: 1,
        },
        shape: shape.cast(),
        strides: strides.cast(),
        byte_offset: 0,
    };
    let context = context.cast();
    if asked.version.is_some_and(|(major, _)| major >= 1) {
        let managed = Box::into_raw(Box::new(ManagedVersioned {
            version: VERSION,
            context,
            deleter: Some(delete_versioned),
            flags: if writable { 0 } else { READ_ONLY },
            tensor,
        }));
        // SAFETY: a box that the capsule's end, or the consumer, gives back.
        return unsafe { new_capsule(py, managed.cast(), NAME_VERSIONED, end_versioned) };
    }
    let managed = Box::into_raw(Box::new(Managed {
        tensor,
        context,
        deleter: Some(delete),
    }));
    if !writable {
        // SAFETY: just made, and given to nobody.
        unsafe { delete(managed) };
        return Err(PyBufferError::new_err(
            "the buffer is read-only, which DLPack can say from 1.0 on: ask with max_version=(1, 0)",
        ));
    }
    // SAFETY: as above.
    unsafe { new_capsule(py, managed.cast(), NAME, end) }
}

/// # Safety
/// `managed` is a tensor that `end` gives back.
unsafe fn new_capsule<'py>(
    py: Python<'py>,
    managed: *mut c_void,
    name: &'static CStr,
    end: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the name lives for ever; the result is a new reference or null.
    unsafe {
        let made = ffi::PyCapsule_New(managed, name.as_ptr(), Some(end));
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// Ends a capsule. If no consumer took the tensor out of it, which renames it, the tensor goes too.
unsafe extern "C" fn end(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls it with the capsule, once; under this name it has the tensor of `new_capsule`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

/// Does the work of [`end`] for a versioned tensor.
unsafe extern "C" fn end_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as for `end`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME_VERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME_VERSIONED.as_ptr());
            delete_versioned(managed.cast());
        }
    }
}

/// Deletes a tensor; the consumer calls it once, from any thread.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: a box of `capsule`'s, given back once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: so is its context.
    unsafe { forget(managed.context) };
}

/// Does the work of [`delete`] for a versioned tensor.
unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: a box of `capsule`'s, given back once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: so is its context.
    unsafe { forget(managed.context) };
}

/// # Safety
/// A context of `capsule`'s, given back once.
unsafe fn forget(context: *mut c_void) {
    // SAFETY: as the caller says.
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    // None if the interpreter is going down: then the view goes with it.
    let mut context = Some(context);
    let _ = Python::try_attach(|_| drop(context.take()));
    std::mem::forget(context);
}
