"""Ways to spread tables over ranks."""
