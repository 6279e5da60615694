"""A component of `tranship run` (27_languages.toml): counts the bytes that come."""

from tranship.component import Component

component = Component()
total = 0
for frame in component.receiver("copies"):
    total += frame.nbytes
print(total, "bytes came through three languages")
