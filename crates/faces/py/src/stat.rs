//! Figures of the manager, as dictionaries.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tranship::admin::{Got, LeakReport, StatRecord};
use tranship_proto::{Record, Value};

macro_rules! put {
    ($to:ident, $from:ident: $($field:ident),+ $(,)?) => {
        $($to.set_item(stringify!($field), $from.$field)?;)+
    };
}
pub(crate) use put;

/// Returns lists by the kind of record; of the manager there is one.
pub(crate) fn dict(py: Python<'_>, records: Vec<StatRecord>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("manager", py.None())?;
    for list in ["domains", "pools", "channels", "holds", "heaps"] {
        all.set_item(list, PyList::empty(py))?;
    }
    for record in records {
        let entry = figures(py, record.record())?;
        match all.get_item(record.list())? {
            Some(list) if list.is_instance_of::<PyList>() => {
                list.call_method1("append", (entry,))?;
            }
            _ => all.set_item(record.list(), entry)?,
        }
    }
    Ok(all)
}

/// Returns a record by the names of its figures, without those that only the statistics page has.
fn figures<'py>(py: Python<'py>, record: &dyn Record) -> PyResult<Bound<'py, PyDict>> {
    let to = PyDict::new(py);
    for (figure, value) in record.each().filter(|(figure, _)| !figure.page_only) {
        match value {
            Value::Absent => to.set_item(figure.name, py.None())?,
            Value::Flag(flag) => to.set_item(figure.name, flag)?,
            Value::Number(number) => to.set_item(figure.name, number)?,
            Value::Text(text) => to.set_item(figure.name, text)?,
            Value::Domain(id) => to.set_item(figure.name, id.0)?,
            Value::Pool(id) => to.set_item(figure.name, id.0)?,
            Value::Pools(ids) => {
                let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
                to.set_item(figure.name, ids)?;
            }
            Value::Record(record) => to.set_item(figure.name, figures(py, record)?)?,
        }
    }
    Ok(to)
}

/// Buffers that a domain has.
pub(crate) fn leaks<'py>(py: Python<'py>, report: &LeakReport) -> PyResult<Bound<'py, PyDict>> {
    let got = |to: &Bound<'py, PyDict>, got: Option<&Got>| {
        to.set_item("age", got.map(|g| g.age.as_secs_f64()))?;
        let channel = got.and_then(|g| g.channel.as_ref());
        to.set_item("channel", channel.map(|(_, name)| name))?;
        to.set_item("backtrace", got.and_then(|g| g.backtrace.as_ref()))
    };
    let (held, own) = (PyList::empty(py), PyList::empty(py));
    for of in &report.held {
        let to = PyDict::new(py);
        (to.set_item("pool", of.pool.0)).and(to.set_item("writer", of.writer.0))?;
        to.set_item("id", of.id.0)?;
        put!(to, of: bytes, handles);
        got(&to, of.got.as_ref())?;
        held.append(to)?;
    }
    for of in &report.own {
        let to = PyDict::new(py);
        (to.set_item("pool", of.pool.0)).and(to.set_item("pool_name", &of.pool_name))?;
        to.set_item("id", of.id.0)?;
        put!(to, of: bytes);
        got(&to, Some(&of.got))?;
        own.append(to)?;
    }
    let all = PyDict::new(py);
    all.set_item("held", held)?;
    all.set_item("own", own)?;
    Ok(all)
}
