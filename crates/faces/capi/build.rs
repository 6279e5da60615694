//! Sets the library's soname, by which linked programs ask for the library. The number in it is the ABI's.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtranship.so.0");
}
