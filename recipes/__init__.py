"""Recipes: one package per checkpoint that this project trains and ships."""
