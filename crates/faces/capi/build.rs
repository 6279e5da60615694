//! The name by which programs that were linked with the library ask for it. Its number is that of the ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtranship.so.0");
}
